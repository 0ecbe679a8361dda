CREATE SOURCE v (k BIGINT NOT NULL, d DECIMAL(5,2), at TIMESTAMP(3), ok BOOLEAN, ts BIGINT, WATERMARK FOR ts AS ts) AS VALUES (1, 1.5, '2024-02-29 12:00:00', true, 0), (-2, NULL, NULL, 'f', 1000);
CREATE JOB j AS SELECT k, sum(d) AS s, avg(d) AS a, min(at) AS first, count(d) AS n, window_end FROM tumble(v, ts, INTERVAL '1 second') GROUP BY k, window_end;
