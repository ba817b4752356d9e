-- One row per execution and attempt. Times are nanoseconds since 1970.
CREATE TABLE execution (
    scope TEXT NOT NULL,
    execution_id TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    turn TEXT NOT NULL,
    thread TEXT NOT NULL,
    tool_name TEXT NOT NULL,
    arguments_sha256 TEXT NOT NULL,
    repeatable INTEGER NOT NULL,
    state TEXT NOT NULL,
    execution_timeout REAL NOT NULL DEFAULT 0,
    accept_time BIGINT NOT NULL DEFAULT 0,
    start_time BIGINT NOT NULL DEFAULT 0,
    end_time BIGINT NOT NULL DEFAULT 0,
    end_json TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (scope, execution_id, attempt)
);

CREATE INDEX execution_thread ON execution (scope, thread);
CREATE INDEX execution_state ON execution (state, end_time);

-- The highest fencing number seen for each turn.
CREATE TABLE turn_epoch (
    scope TEXT NOT NULL,
    turn TEXT NOT NULL,
    thread TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    seen_time BIGINT NOT NULL,
    PRIMARY KEY (scope, turn)
);

CREATE INDEX turn_epoch_thread ON turn_epoch (scope, thread);
