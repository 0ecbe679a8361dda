CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP(3), extra TEXT,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
  WITH (connector = 'kafka', brokers = 'localhost:9092', topic = 'bids', format = 'json');
CREATE JOB growing AS SELECT window_start, window_end, sum(price) AS total
  FROM CUMULATE(TABLE bids, DESCRIPTOR(date_time), INTERVAL '2' MINUTE, INTERVAL '10' MINUTE) GROUP BY window_start, window_end;
