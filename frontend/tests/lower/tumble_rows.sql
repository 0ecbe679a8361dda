CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP(3), extra TEXT,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
  WITH (connector = 'kafka', brokers = 'localhost:9092', topic = 'bids', format = 'json');
CREATE JOB stamped AS SELECT window_start, window_end, window_time, price FROM tumble(bids, date_time, INTERVAL '1 minute', INTERVAL '5 seconds') WHERE window_start > TIMESTAMP '2024-01-01 00:00:00';
