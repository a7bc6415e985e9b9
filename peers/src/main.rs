//! One-core speed of candle on a model file, in the arena's cell: 64 prompt tokens, 50 new ones.
//!
//! Prints one JSON line in the form of `cargo bench -p cacheon-worker --bench engine -- --json`.

use candle_core::quantized::gguf_file::Content;
use candle_core::{Device, Tensor};
use candle_transformers::models::quantized_llama::ModelWeights;
use std::fs::File;
use std::time::{Duration, Instant};

const PROMPT: u32 = 64;
const NEW: usize = 50;
const ROUNDS: u32 = 5;

/// CPU time of the whole process: candle computes on threads of its own.
fn cpu_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec that lives on this stack.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn likeliest(logits: &Tensor) -> candle_core::Result<u32> {
    logits.squeeze(0)?.argmax(0)?.to_scalar()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: cacheon-peers MODEL.gguf")?;
    // SAFETY: a zeroed set is valid; no thread has been started yet.
    unsafe {
        std::env::set_var("RAYON_NUM_THREADS", "1");
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
    let device = Device::Cpu;
    let mut file = File::open(path)?;
    let content = Content::read(&mut file)?;
    let mut model = ModelWeights::from_gguf(content, &mut file, &device)?;
    let (mut prefill, mut batch, mut wall) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let prompt: Vec<u32> = (0..PROMPT).map(|i| 17 + (i * 7919 + round * 104_729) % 49_135).collect();
        let (cpu, started) = (cpu_time(), Instant::now());
        let input = Tensor::new(prompt.as_slice(), &device)?.unsqueeze(0)?;
        let mut token = likeliest(&model.forward(&input, 0)?)?;
        let first = (cpu_time() - cpu).as_secs_f64();
        for step in 1..NEW {
            let input = Tensor::new(&[token], &device)?.unsqueeze(0)?;
            token = likeliest(&model.forward(&input, PROMPT as usize + step - 1)?)?;
        }
        if round > 0 {
            prefill.push(first);
            batch.push((cpu_time() - cpu).as_secs_f64());
            wall.push(started.elapsed().as_secs_f64());
        }
    }
    let (prefill, batch, wall) = (median(prefill), median(batch), median(wall));
    println!(
        "{{\"name\":\"candle\",\"prefill_tokens_per_second\":{:.1},\"decode_tokens_per_second\":{:.1},\
         \"batch_seconds\":{batch:.5},\"wall_seconds\":{wall:.5}}}",
        f64::from(PROMPT) / prefill,
        (NEW - 1) as f64 / (batch - prefill),
    );
    Ok(())
}
