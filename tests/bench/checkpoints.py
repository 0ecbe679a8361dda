"""What checkpoints cost (SPD-2): throughput with one every second against none, over a window with many live keys, and bytes of a
checkpoint as the share of keys that change between two of them goes from 1 % to 100 %.

    cargo build --release
    tests/bench/checkpoints.py                              # 1,000,000 keys, 80,000,000 rows: 2 GB that are deleted again
    tests/bench/checkpoints.py --weir target/debug/weir --keys 10000 --rows 200000

Each run is a `weir up` of its own on a file that is made for it: first a row of every key, then rows of the keys that change, all in
one window that stays open. Prints one line of JSON a run, and the ratio.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TIME_MS = 1_767_225_600_000
LONGEST_S = 600


def rows_of(path, keys, changing, rows):
    def lines(count):
        return "".join(f'{{"n":{n},"t":{TIME_MS}}}\n' for n in range(count)).encode()

    with open(path, "wb") as file:
        file.write(lines(keys))
        again, left = lines(changing), rows - keys
        while left >= changing:
            file.write(again)
            left -= changing


def ask(http, sql):
    body = json.dumps({"sql": sql}).encode()
    request = urllib.request.Request(f"{http}/api/v1/sql", body, {"content-type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as answer:
        return json.load(answer).get("rows", [])


def run(weir, path, interval, scratch):
    data = tempfile.mkdtemp(dir=scratch)
    listen = [part for door in ("pg", "http", "agent") for part in (f"--{door}-listen", "127.0.0.1:0")]
    process = subprocess.Popen([weir, "up", "--data-dir", data, *listen], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        http = None
        for line in process.stdout:
            if line.startswith("http "):
                http = line.split()[1]
            if line.strip() == "ready":
                break
        ask(http, f"CREATE SOURCE f (n BIGINT, t BIGINT, WATERMARK FOR t AS t) WITH (connector = 'file', path = '{path}', format = 'json')")
        ask(http, "CREATE SINK nowhere WITH (connector = 'drop')")
        began = time.monotonic()
        ask(http, f"CREATE JOB j INTO nowhere WITH (checkpoint.interval = '{interval}') AS SELECT n, window_start, count(*) AS c, sum(n) AS s "
                  "FROM tumble(f, t, INTERVAL '1 day') GROUP BY n, window_start, window_end")
        while True:
            state, error = ask(http, "SELECT state, last_error FROM weir.jobs WHERE id = 'j'")[0]
            if state in ("finished", "failed") or time.monotonic() - began > LONGEST_S:
                break
            time.sleep(0.02)
        seconds = time.monotonic() - began
        if state != "finished":
            raise SystemExit(f"the job is {state}: {error}")
        made = ask(http, "SELECT bytes_new, align_ms, duration_ms FROM weir.job_checkpoints WHERE state = 'completed' ORDER BY id")
        return seconds, [tuple(int(value) for value in row) for row in made]
    finally:
        process.kill()
        process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", default=os.path.join(ROOT, "target/release/weir"))
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=80_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as scratch:
        path = os.path.join(scratch, "rows.ndjson")
        for percent in (1, 10, 100):
            rows_of(path, options.keys, max(1, options.keys * percent // 100), options.rows)
            seconds = {"1s": [], "1h": []}
            made = []
            for _ in range(options.repeat):
                for interval, taken in seconds.items():
                    took, checkpoints = run(options.weir, path, interval, scratch)
                    taken.append(took)
                    # The first one holds keys that were new.
                    made += checkpoints[1:] if interval == "1s" else []
            with_, without = (statistics.median(seconds[interval]) for interval in ("1s", "1h"))
            print(json.dumps({
                "keys": options.keys, "rows": options.rows, "changing_percent": percent,
                "seconds_with": round(with_, 2), "seconds_without": round(without, 2), "throughput_ratio": round(without / with_, 3),
                "checkpoints": len(made),
                "bytes_new_median": statistics.median(b for b, _, _ in made) if made else None,
                "align_ms_max": max((a for _, a, _ in made), default=None),
                "duration_ms_median": statistics.median(d for _, _, d in made) if made else None,
            }), flush=True)


if __name__ == "__main__":
    main()
