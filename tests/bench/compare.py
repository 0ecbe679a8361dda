"""Weir beside its peers on the same bids, one core each, one after the other: a table of ratios.

    cargo build --release
    tests/bench/compare.py --venv DIR --setup           # once: makes a virtual environment with the peers
    tests/bench/compare.py --venv DIR                   # 5,000,000 bids, made once; every query and peer
    tests/bench/compare.py --venv DIR --queries q5,q12 --peers flink,clink --repeat 5
    tests/bench/compare.py --venv DIR --formats parquet # the peers that read Parquet

Queries: q0 pass-through, q1 price * 0.908, q2 auction % 123 = 0, q5 count per auction in windows of
10 s every 2 s, q7 highest price in windows of 10 s, q11 count per bidder in sessions with a gap of
10 s, q12 count per bidder in windows of 10 s; all of event time.

Peers: flink and clink are streaming engines and read JSON alone (clink: the same bids with times as
milliseconds, since it reads no others); duckdb and datafusion are batch engines that know where
the input ends. Every engine reads the file anew in each run, with one thread or parallelism 1,
pinned to one core with all that it starts. The tables show the median of the runs; on a machine that
does other work the ratios per CPU second count, wall clocks do not. Result rows that differ between
engines, or from what is known of the 5,000,000 bids, are an error, whatever the speed.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import venv

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
QUERIES = ["q0", "q1", "q2", "q5", "q7", "q11", "q12"]
PEERS = ["flink", "clink", "duckdb", "datafusion"]
# Result rows of the 5,000,000 bids with the seed of nexgen.py: DuckDB, DataFusion and Flink agree on them.
KNOWN_ROWS = 5_000_000
KNOWN = {"q0": 5_000_000, "q1": 5_000_000, "q2": 40_809, "q5": 1_639_596, "q7": 28, "q11": 108_615, "q12": 130_950}
LONGEST_S = 3_600


def setup(path):
    venv.create(path, with_pip=True)
    python = os.path.join(path, "bin", "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--requirement", os.path.join(HERE, "requirements-peers.txt")], check=True)
    if shutil.which("java") is None:
        print("there is no java in PATH: flink needs version 11 or 17", file=sys.stderr)


def pinned(command, core):
    return ["taskset", "-c", str(core), *command] if shutil.which("taskset") else command


def lines_of_json(text):
    found = []
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def measure(command, core, what):
    """The figures that a command prints, one line of JSON a run; `None` where the engine has no such query."""
    done = subprocess.run(pinned(command, core), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LONGEST_S)
    figures = lines_of_json(done.stdout)
    if done.returncode != 0 or not figures:
        sys.exit(f"{what} failed ({done.returncode}): {' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return None if "absent" in figures[0] else figures


def runs_of(engine, query, paths, kind, a):
    if engine == "weir":
        command = [a.weir, "bench", "nexmark", "--query", query, "--input", paths[kind], *a.weir_args.split()]
        return [measure(command, a.core, f"weir, {query}")[-1] for _ in range(a.repeat)]
    path = paths["json-ms"] if engine == "clink" and kind == "json" else paths[kind]
    runner = os.path.join(HERE, "peers", f"{engine}_peer.py")
    command = [a.python, runner, "--input", path, "--query", query, "--repeat", str(a.repeat)]
    return measure(command, a.core, f"{engine}, {query}")


def median_of(engine, query, runs):
    answers = {run["out_rows"] for run in runs}
    if len(answers) != 1:
        sys.exit(f"{engine} gave different results for {query} in its runs: {sorted(answers)}")
    middle = {name: statistics.median(run[name] for run in runs) for name in ("seconds", "cpu_seconds", "peak_rss_bytes")}
    spread = max(run["cpu_seconds"] for run in runs) / min(run["cpu_seconds"] for run in runs)
    return {**middle, "cpu_spread": spread, "out_rows": answers.pop()}


def check(query, figures, rows, made):
    answers = {engine: run["out_rows"] for engine, run in figures.items()}
    if made and rows == KNOWN_ROWS:
        answers["known"] = KNOWN[query]
    if len(set(answers.values())) != 1:
        sys.exit(f"the result rows of {query} differ: {answers}")


def rates(run, rows):
    return rows / run["seconds"] / 1e6, rows / max(run["cpu_seconds"], 1e-9) / 1e6


def table(head, body):
    lines = [f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *body]]
    return "\n".join(lines)


def print_tables(kind, figures, rows, engines):
    """`figures` by query, then by engine."""

    def rate(query, engine):
        if engine not in figures[query]:
            return "-"
        wall, cpu = rates(figures[query][engine], rows)
        return f"{wall:.2f} ({cpu:.2f})"

    def ratio(query, peer):
        if peer not in figures[query]:
            return "-"
        ours, theirs = rates(figures[query]["weir"], rows), rates(figures[query][peer], rows)
        return f"{ours[0] / theirs[0]:.2f}x ({ours[1] / theirs[1]:.2f}x)"

    def peak(query, engine):
        return f"{figures[query][engine]['peak_rss_bytes'] / 1e6:.0f}" if engine in figures[query] else "-"

    peers = [engine for engine in engines if engine != "weir"]
    print(f"\n{kind}, {rows:,} bids, one core each, median: M rows/s, wall (per CPU second)\n")
    print(table(["query", *engines, "result rows"], [[q, *(rate(q, e) for e in engines), f"{figures[q]['weir']['out_rows']:,}"] for q in figures]))
    if peers:
        print("\nWeir is faster by, wall (per CPU second)\n")
        print(table(["query", *peers], [[q, *(ratio(q, e) for e in peers)] for q in figures]))
    print("\npeak memory, MB\n")
    print(table(["query", *engines], [[q, *(peak(q, e) for e in engines)] for q in figures]))


def input_files(a):
    """Paths by kind, number of bids, and whether they are of the generator."""
    if a.input:
        kind = "parquet" if a.input.endswith(".parquet") else "json"
        paths = {kind: os.path.abspath(a.input)}
        if a.input_ms:
            paths["json-ms"] = os.path.abspath(a.input_ms)
        return paths, None, False
    command = [a.python, os.path.join(HERE, "nexgen.py"), os.path.join(a.data, f"bids-{a.rows}"), "--rows", str(a.rows)]
    kinds = [kind for kind in a.formats if kind in ("json", "parquet")] + ["json-ms"] * ("clink" in a.peers and "json" in a.formats)
    done = subprocess.run([*command, "--only", ",".join(kinds)], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit("the bids could not be made")
    return lines_of_json(done.stdout)[-1], a.rows, True


def compare(kind, paths, rows, made, a):
    def can_read(peer):
        return peer in ("duckdb", "datafusion") or (kind == "json" and (peer != "clink" or "json-ms" in paths))

    peers = [peer for peer in a.peers if can_read(peer)]
    figures = {}
    for query in a.queries:
        figures[query] = {}
        for engine in ["weir", *peers]:
            runs = runs_of(engine, query, paths, kind, a)
            if runs is None:
                continue
            if engine == "weir":
                rows = runs[0]["rows"]
            figures[query][engine] = median_of(engine, query, runs)
            wall, cpu = rates(figures[query][engine], rows)
            print(f"{query} {engine}: {wall:.2f} M rows/s, {cpu:.2f} per CPU second, spread {figures[query][engine]['cpu_spread']:.2f}", file=sys.stderr)
        check(query, figures[query], rows, made)
    print_tables(kind, figures, rows, ["weir", *peers])
    return figures


def chosen(parser, text, known, what):
    names = [name for name in text.split(",") if name]
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"unknown {what} {', '.join(unknown)}: choose from {', '.join(known)}")
    return names


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", default=os.path.join(HERE, ".venv"), help="the virtual environment with the peers")
    parser.add_argument("--setup", action="store_true", help="make it and install the peers, then end")
    parser.add_argument("--queries", default=",".join(QUERIES))
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--formats", default="json")
    parser.add_argument("--rows", type=int, default=KNOWN_ROWS, help="bids to make")
    parser.add_argument("--data", default=os.path.join(ROOT, "tests", ".data"), help="where made bids are kept")
    parser.add_argument("--input", help="a file of bids, instead of made ones")
    parser.add_argument("--input-ms", help="the same bids for clink, with times as milliseconds")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0)
    parser.add_argument("--weir", default=os.path.join(ROOT, "target", "release", "weir"))
    parser.add_argument("--weir-args", default="", help="more arguments for weir bench, such as '--epoch-ms 2000'")
    parser.add_argument("--json", help="a file for all figures")
    a = parser.parse_args()
    if a.setup:
        setup(a.venv)
        return
    a.queries = chosen(parser, a.queries, QUERIES, "queries")
    a.peers = chosen(parser, a.peers, PEERS, "peers")
    a.formats = chosen(parser, a.formats, ["json", "parquet"], "formats")
    a.python = os.path.join(a.venv, "bin", "python")
    if not os.path.exists(a.python):
        sys.exit(f"{a.venv} is no virtual environment: make one with --setup, or name one with --venv")
    if not os.path.exists(a.weir):
        sys.exit(f"{a.weir} is not there: run cargo build --release, or name a binary with --weir")
    paths, rows, made = input_files(a)
    figures = {kind: compare(kind, paths, rows, made, a) for kind in paths if kind != "json-ms"}
    if a.json:
        with open(a.json, "w") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
