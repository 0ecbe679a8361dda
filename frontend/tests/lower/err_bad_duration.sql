CREATE SOURCE s (a BIGINT) WITH (connector = 'kafka', brokers = 'b:1', topic = 't', format = 'json',
  allowed_lateness = 'soon');
