"""Reads paths from standard input; for each prints one JSON line with the interpreter's own verdict and text."""
import ast
import json
import sys
import warnings

warnings.simplefilter("ignore")
sys.setrecursionlimit(5000)
for line in sys.stdin:
    path = line.rstrip("\n")
    with open(path, "rb") as file:
        raw = file.read()
    row = {"path": path}
    try:
        source = raw.decode("utf-8")
        comments = False
        if source.startswith("#type_comments\n"):
            comments = True
        source = source.replace("\r\n", "\n").replace("\r", "\n")
        tree = ast.parse(source, type_comments=comments)
        row["text"] = None if comments else ast.unparse(tree)
        row["ok"] = True
    except (SyntaxError, ValueError, AssertionError, OverflowError) as error:
        row["ok"] = False
        row["error"] = "%s: %s" % (type(error).__name__, error)
    except (RecursionError, MemoryError):
        row["skip"] = True
    sys.stdout.write(json.dumps(row) + "\n")
