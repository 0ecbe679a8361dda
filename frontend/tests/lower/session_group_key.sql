CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP(3), extra TEXT,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
  WITH (connector = 'kafka', brokers = 'localhost:9092', topic = 'bids', format = 'json');
CREATE JOB visits AS SELECT bidder, session_start(date_time, INTERVAL '10 seconds'), count(*) AS n
  FROM bids GROUP BY bidder, session(date_time, INTERVAL '10 seconds');
