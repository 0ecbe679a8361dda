CREATE SOURCE v (k TEXT, ts BIGINT, x BIGINT, WATERMARK FOR ts AS ts) WITH (allowed_lateness = '1s', late_event_policy = 'update') AS VALUES ('a', 0, 1);
CREATE JOB j AS
  SELECT k, window_start, window_end, count(*) AS n FROM tumble(v, ts, INTERVAL '1 second') GROUP BY k, window_start, window_end
  UNION ALL
  SELECT 'all', window_start, window_end, count(*) FROM tumble(v, ts, INTERVAL '1 second') GROUP BY window_start, window_end;
