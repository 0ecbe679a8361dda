"""What the runners of the peers share: their arguments, and figures as one line of JSON a run."""
import argparse
import json
import os
import resource
import sys
import time


def arguments(doc):
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--input", required=True)
    parser.add_argument("--query", required=True)
    parser.add_argument("--repeat", type=int, default=3)
    return parser.parse_args()


def timed(run):
    """Wall and CPU seconds of `run()` in this process, and the result rows that it returns."""
    before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    out_rows = run()
    seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    peak = after.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {"seconds": seconds, "cpu_seconds": cpu, "out_rows": out_rows, "peak_rss_bytes": peak}


def report(figures):
    print(json.dumps(figures), flush=True)


def absent(query):
    """This engine has no such query."""
    report({"absent": query})


def is_parquet(path):
    return os.path.splitext(path)[1] == ".parquet"
