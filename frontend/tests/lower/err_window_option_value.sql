CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP(3), extra TEXT,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
  WITH (connector = 'kafka', brokers = 'localhost:9092', topic = 'bids', format = 'json');
CREATE JOB bad WITH (window.on_overflow = 'drop') AS SELECT auction, window_start, window_end, count(*) AS n FROM tumble(bids, date_time, INTERVAL '1 minute') GROUP BY auction, window_start, window_end;
