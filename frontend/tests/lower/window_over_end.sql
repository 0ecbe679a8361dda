CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP(3), extra TEXT,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
  WITH (connector = 'kafka', brokers = 'localhost:9092', topic = 'bids', format = 'json');
CREATE JOB hourly AS SELECT k, sum(n) AS n, window_end FROM tumble((SELECT auction % 10 AS k, count(*) AS n, window_end AS ended
    FROM tumble(bids, date_time, INTERVAL '1 minute') GROUP BY auction % 10, window_start, window_end), ended, INTERVAL '1 hour')
  GROUP BY k, window_start, window_end;
