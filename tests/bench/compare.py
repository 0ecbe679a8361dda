"""Weir beside DuckDB and DataFusion on the same bytes, one core each, one after the other.

    tests/.env/bin/python tests/bench/compare.py                       # 5,000,000 bids, made once
    tests/.env/bin/python tests/bench/compare.py --rows 500000 --repeat 1
    tests/.env/bin/python tests/bench/compare.py --input my/bids.ndjson --peers duckdb

Query q12: bids per bidder in tumbling windows of 10 s of event time. Each side reads the file anew
in every run and gives all result rows; each run is a process of its own, pinned to one core. The
table shows the median run. A difference in the results is an error, whatever the speed.

Weir must be built before: cargo build --release
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
WINDOW_MS = 10_000
TIMES = {"dateTime": '"dateTime"', "date_time": "date_time"}


def format_of(path):
    ending = os.path.splitext(path)[1]
    kinds = {".ndjson": "json", ".jsonl": "json", ".json": "json", ".parquet": "parquet"}
    if ending not in kinds:
        sys.exit(f"{path}: the ending {ending!r} is not known, use one of {', '.join(kinds)}")
    return kinds[ending]


def time_column(path):
    """The generator of the benchmark calls it dateTime, ours of the SQL examples date_time."""
    if format_of(path) == "parquet":
        import pyarrow.parquet as pq

        names = pq.read_schema(path).names
    else:
        with open(path, "rb") as lines:
            names = list(json.loads(lines.readline()))
    for name in TIMES:
        if name in names:
            return name
    sys.exit(f"{path}: none of the columns {', '.join(TIMES)} in {names}")


# The peers. Each runs in a child process and prints one line of JSON: rows out, and the sum of all
# counts, which must be the number of rows that were read.


def counted(batches):
    import pyarrow.compute as pc

    rows = total = 0
    for batch in batches:
        rows += batch.num_rows
        total += pc.sum(batch.column(2)).as_py() or 0
    return rows, total


def duckdb_q12(path, threads):
    import duckdb

    connection = duckdb.connect(config={"threads": threads})
    column = TIMES[time_column(path)]
    if format_of(path) == "parquet":
        source = f"read_parquet('{path}')"
    else:
        # Only the columns that the query asks for are named, as the reader of Weir does.
        source = f"read_json('{path}', format='newline_delimited', columns={{bidder: 'BIGINT', {column}: 'TIMESTAMP'}})"
    query = f"SELECT bidder, epoch_ms({column}) // {WINDOW_MS} AS w, count(*) AS n FROM {source} GROUP BY bidder, w"
    return counted(connection.sql(query).to_arrow_reader(65_536))


def datafusion_q12(path, threads):
    import datafusion
    import pyarrow as pa

    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(threads))
    name = time_column(path)
    if format_of(path) == "parquet":
        context.register_parquet("bid", path)
    else:
        schema = pa.schema([("bidder", pa.int64()), (name, pa.timestamp("ms"))])
        context.register_json("bid", path, file_extension=os.path.splitext(path)[1], schema=schema)
    ms = f"CAST(CAST({TIMES[name]} AS TIMESTAMP(3)) AS BIGINT)"
    query = f"SELECT bidder, {ms} / {WINDOW_MS} AS w, count(*) AS n FROM bid GROUP BY bidder, {ms} / {WINDOW_MS}"
    return counted(batch.to_pyarrow() for batch in context.sql(query).execute_stream())


PEERS = {"duckdb": duckdb_q12, "datafusion": datafusion_q12}


def run_peer(name, path, threads):
    """The child's part: time the query alone, not the interpreter's start."""
    import importlib
    import resource

    for module in (name, "pyarrow.compute", "pyarrow.parquet"):
        importlib.import_module(module)
    before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    rows, total = PEERS[name](path, threads)
    seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    peak = after.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(json.dumps({"rows": total, "seconds": seconds, "cpu_seconds": cpu, "out_rows": rows, "peak_rss_bytes": peak}))


# The parent's part.


def pinned(command, core):
    return ["taskset", "-c", str(core), *command] if shutil.which("taskset") else command


def last_json(text):
    for line in reversed(text.strip().splitlines()):
        try:
            return json.loads(line)
        except ValueError:
            continue
    return None


def measure(command, core, what):
    done = subprocess.run(pinned(command, core), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=600)
    figures = last_json(done.stdout)
    if done.returncode != 0 or figures is None:
        sys.exit(f"{what} failed ({done.returncode}): {' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return figures


def commands(engine, path, a):
    if engine == "weir":
        command = [a.weir, "bench", "nexmark", "--query", "q12", "--input", path]
        return command + a.weir_args.split()
    return [sys.executable, os.path.abspath(__file__), "--child", engine, "--input", path]


def median_run(engine, path, a):
    runs = [measure(commands(engine, path, a), a.core, engine) for _ in range(a.repeat)]
    answers = {(run["rows"], run["out_rows"]) for run in runs}
    if len(answers) != 1:
        sys.exit(f"{engine} on {path} gave different results in its runs: {sorted(answers)}")
    middle = sorted(runs, key=lambda run: run["seconds"])[len(runs) // 2]
    middle["spread"] = max(run["seconds"] for run in runs) / min(run["seconds"] for run in runs)
    middle["cpu_seconds"] = statistics.median(run["cpu_seconds"] for run in runs)
    return middle


def table(kind, figures):
    weir = figures["weir"]
    print(f"\nq12, {kind}, {weir['rows']:,} bids, one core, median run")
    print(f"{'engine':<12}{'seconds':>9}{'M rows/s':>10}{'M rows/cpu-s':>14}{'peak MB':>9}{'result rows':>13}{'weir is':>10}{'per cpu-s':>11}")
    for engine, run in figures.items():
        wall, cpu = run["rows"] / run["seconds"], run["rows"] / max(run["cpu_seconds"], 1e-9)
        ratio = run["seconds"] / weir["seconds"]
        cpu_ratio = run["cpu_seconds"] / max(weir["cpu_seconds"], 1e-9)
        against = f"{ratio:>9.2f}x{cpu_ratio:>10.2f}x" if engine != "weir" else f"{'':>10}{'':>11}"
        peak = run.get("peak_rss_bytes", 0) / 1e6
        print(f"{engine:<12}{run['seconds']:>9.2f}{wall / 1e6:>10.2f}{cpu / 1e6:>14.2f}{peak:>9.0f}{run['out_rows']:>13,}{against}")


def compare(path, a):
    figures = {engine: median_run(engine, path, a) for engine in ["weir", *a.peers]}
    table(format_of(path), figures)
    answers = {engine: (run["rows"], run["out_rows"]) for engine, run in figures.items()}
    if len(set(answers.values())) != 1:
        sys.exit(f"the results differ, (rows counted, result rows): {answers}")
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", action="append", default=[], help="a file of bids; without it some are made")
    parser.add_argument("--rows", type=int, default=5_000_000, help="bids to make")
    parser.add_argument("--data", default=os.path.join(ROOT, "tests", ".data"), help="where made bids are kept")
    parser.add_argument("--formats", default="json,parquet")
    parser.add_argument("--peers", default="duckdb,datafusion")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0)
    parser.add_argument("--weir", default=os.path.join(ROOT, "target", "release", "weir"))
    parser.add_argument("--weir-args", default="", help="more arguments for weir bench, such as '--parallelism 1'")
    parser.add_argument("--json", action="store_true", help="also print the figures as one line of JSON")
    parser.add_argument("--child", choices=sorted(PEERS), help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.child:
        run_peer(a.child, a.input[0], 1)
        return
    a.peers = [peer for peer in a.peers.split(",") if peer]
    unknown = [peer for peer in a.peers if peer not in PEERS]
    if unknown:
        sys.exit(f"unknown peers {unknown}: choose from {', '.join(PEERS)}")
    if not os.path.exists(a.weir):
        sys.exit(f"{a.weir} is not there: run cargo build --release, or name a binary with --weir")
    inputs = a.input
    if not inputs:
        sys.path.insert(0, HERE)
        import nexgen

        made = nexgen.write(os.path.join(a.data, f"bids-{a.rows}"), a.rows, nexgen.Shape())
        inputs = [made[kind] for kind in a.formats.split(",")]
    figures = {path: compare(path, a) for path in inputs}
    if a.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
