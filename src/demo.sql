-- What `weir up --demo` makes: bids of the Nexmark auction site, 1,000 events a second, and two jobs over them.
CREATE SOURCE IF NOT EXISTS demo_bids (
  auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP(3), extra TEXT,
  WATERMARK FOR date_time AS date_time
) WITH (connector = 'generate', kind = 'nexmark', table = 'bid', events_per_second = 1000);

CREATE JOB IF NOT EXISTS bids_per_channel AS
  SELECT channel, window_start, window_end, count(*) AS bids, max(price) AS highest
  FROM tumble(demo_bids, date_time, INTERVAL '5 seconds')
  GROUP BY channel, window_start, window_end;

CREATE JOB IF NOT EXISTS bids_per_bidder AS
  SELECT bidder, window_start, window_end, count(*) AS bids, sum(price) AS total
  FROM tumble(demo_bids, date_time, INTERVAL '10 seconds')
  GROUP BY bidder, window_start, window_end;
