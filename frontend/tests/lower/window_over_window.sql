CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP(3), extra TEXT,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
  WITH (connector = 'kafka', brokers = 'localhost:9092', topic = 'bids', format = 'json');
CREATE JOB hourly AS SELECT max(n) AS busiest, window_start FROM tumble((SELECT auction, count(*) AS n, window_time
    FROM hop(bids, date_time, INTERVAL '1 minute', INTERVAL '5 minutes') GROUP BY auction, window_start, window_end), window_time, INTERVAL '1 hour')
  GROUP BY window_start, window_end;
