CREATE SOURCE s (a BIGINT) WITH (connector = 'kafka', brokers = 'b:1', topic = 't', format = 'json');
CREATE JOB bad AS SELECT count(*) FROM tumble(s, a, INTERVAL '1 minute') GROUP BY window_start;
