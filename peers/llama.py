"""One-core speed of llama.cpp on a model file, in the arena's cell: 64 prompt tokens, 50 new ones.

Usage: python peers/llama.py MODEL.gguf   (needs `pip install llama-cpp-python`, built for the machine or for AVX2)
Prints one JSON line in the form of `cargo bench -p cacheon-worker --bench engine -- --json`.
"""

import json
import os
import statistics
import sys
import time

os.sched_setaffinity(0, {0})

from llama_cpp import Llama  # noqa: E402  (threads are counted after pinning)

PROMPT, NEW, ROUNDS = 64, 50, 5


def main() -> None:
    model = Llama(
        model_path=sys.argv[1], n_ctx=256, n_batch=128, n_ubatch=128, n_threads=1, n_threads_batch=1, verbose=False
    )
    prefill, batch, wall = [], [], []
    for turn in range(ROUNDS + 1):
        prompt = [17 + (i * 7919 + turn * 104729) % 49135 for i in range(PROMPT)]
        model.reset()
        cpu, started = time.process_time(), time.perf_counter()
        model.eval(prompt)
        token = model.sample(temp=0.0)
        first = time.process_time() - cpu
        for _ in range(NEW - 1):
            model.eval([token])
            token = model.sample(temp=0.0)
        if turn > 0:
            prefill.append(first)
            batch.append(time.process_time() - cpu)
            wall.append(time.perf_counter() - started)
    first, whole, real = map(statistics.median, (prefill, batch, wall))
    print(
        json.dumps(
            {
                "name": "llama.cpp",
                "prefill_tokens_per_second": round(PROMPT / first, 1),
                "decode_tokens_per_second": round((NEW - 1) / (whole - first), 1),
                "batch_seconds": round(whole, 5),
                "wall_seconds": round(real, 5),
            }
        )
    )


if __name__ == "__main__":
    main()
