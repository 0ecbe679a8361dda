CREATE SOURCE s (a BIGINT) WITH (connector = 'kafkaa', topic = 't');
