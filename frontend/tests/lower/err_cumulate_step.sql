CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP(3), extra TEXT,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
  WITH (connector = 'kafka', brokers = 'localhost:9092', topic = 'bids', format = 'json');
CREATE JOB bad AS SELECT count(*) FROM cumulate(bids, date_time, INTERVAL '4 minutes', INTERVAL '10 minutes') GROUP BY window_end;
