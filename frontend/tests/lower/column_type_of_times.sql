CREATE SOURCE v (k TEXT, ts BIGINT, x BIGINT, WATERMARK FOR ts AS ts) AS VALUES ('a', 0, 1);
CREATE JOB j AS
  SELECT k, window_end - window_start AS length, count(*) AS n FROM tumble(v, ts, INTERVAL '1 second') GROUP BY k, window_start, window_end;
