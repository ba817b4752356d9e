-- One row per command, kept as the audit log. Texts are never stored: `body` holds the encoded command only
-- until there is an outcome, since a runtime may have to get it again.
-- Times are nanoseconds since the epoch. `entry` orders rows by arrival, `position` by their last change.
CREATE TABLE commands (
  entry            INTEGER PRIMARY KEY,
  scope            TEXT    NOT NULL,
  command_id       TEXT    NOT NULL,
  fingerprint      TEXT    NOT NULL,
  kind             TEXT    NOT NULL,
  target_thread    TEXT    NOT NULL,
  target_turn      TEXT    NOT NULL,
  target_graph     TEXT    NOT NULL,
  target_node      TEXT    NOT NULL,
  -- The target's thread, also where only a turn is named.
  thread           TEXT    NOT NULL,
  subject          TEXT    NOT NULL,
  client_id        TEXT    NOT NULL,
  create_time      INTEGER NOT NULL,
  expire_time      INTEGER NOT NULL,
  position         INTEGER NOT NULL,
  state            TEXT    NOT NULL CHECK (state IN ('accepted', 'delivered', 'done')),
  -- JSON of what the command says besides its texts.
  command_json     TEXT    NOT NULL,
  -- 1 from before the first moment at which a runtime may have the command.
  offered          INTEGER NOT NULL,
  bound_turn       TEXT    NOT NULL,
  body             BLOB,
  outcome          TEXT,
  outcome_turn     TEXT,
  applied_sequence INTEGER,
  duplicate_of     TEXT,
  message          TEXT,
  reason           TEXT,
  decide_time      INTEGER,
  CHECK ((state = 'done') = (outcome IS NOT NULL)),
  UNIQUE (scope, command_id)
);

CREATE UNIQUE INDEX commands_by_position ON commands (position);

-- What is still to be decided, for the start of the process.
CREATE INDEX commands_open ON commands (entry) WHERE outcome IS NULL;

-- Outcomes of one client, for its return after a lost connection.
CREATE INDEX commands_outcomes ON commands (scope, client_id, position) WHERE outcome IS NOT NULL;

-- Listings of one scope, newest first.
CREATE INDEX commands_listed ON commands (scope, entry);

-- Retention.
CREATE INDEX commands_ended ON commands (decide_time) WHERE outcome IS NOT NULL;

-- The highest number that deleted rows had: numbers are never given twice.
CREATE TABLE ledger_head (
  only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
  last     INTEGER NOT NULL
);
INSERT INTO ledger_head VALUES (1, 0);
