CREATE SOURCE v (k TEXT, ts BIGINT, x BIGINT, WATERMARK FOR ts AS ts) AS VALUES ('a', 0, 1);
CREATE JOB j AS
  SELECT window_start, sum(n) AS n
  FROM tumble((SELECT k, window_start AS ws, count(*) AS n FROM session(v, ts, INTERVAL '1 second') GROUP BY k, window_start, window_end),
              ws, INTERVAL '1 minute')
  GROUP BY window_start, window_end;
