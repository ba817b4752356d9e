-- Times are nanoseconds since the epoch. JSON stands in TEXT. Every key begins with the scope.
CREATE TABLE threads (
  scope TEXT NOT NULL,
  thread_id TEXT NOT NULL,
  agent TEXT NOT NULL,
  title TEXT NOT NULL DEFAULT '',
  version INTEGER NOT NULL DEFAULT 1,
  next_position INTEGER NOT NULL DEFAULT 1,
  next_queue_position INTEGER NOT NULL DEFAULT 1,
  live_turn TEXT NOT NULL DEFAULT '',
  epoch INTEGER NOT NULL DEFAULT 0,
  owner TEXT NOT NULL DEFAULT '',
  permission_mode TEXT NOT NULL DEFAULT 'ask' CHECK (permission_mode IN ('ask', 'auto')),
  metadata TEXT NOT NULL DEFAULT '{}',
  private_metadata TEXT NOT NULL DEFAULT '{}',
  labels TEXT NOT NULL DEFAULT '{}',
  forked_from TEXT NOT NULL DEFAULT '',
  create_time INTEGER NOT NULL,
  update_time INTEGER NOT NULL,
  delete_time INTEGER,
  PRIMARY KEY (scope, thread_id)
) WITHOUT ROWID;
CREATE INDEX threads_by_update ON threads (scope, update_time);

CREATE TABLE turns (
  scope TEXT NOT NULL,
  thread_id TEXT NOT NULL,
  turn_id TEXT NOT NULL,
  state TEXT NOT NULL
    CHECK (state IN ('queued', 'running', 'waiting', 'completed', 'failed', 'cancelled')),
  agent TEXT NOT NULL,
  agent_digest TEXT NOT NULL,
  request_id TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  spec TEXT NOT NULL,
  subject TEXT NOT NULL DEFAULT '',
  queue_position INTEGER NOT NULL DEFAULT 0,
  episode INTEGER NOT NULL DEFAULT 0,
  step INTEGER NOT NULL DEFAULT 0,
  transcript_sequence INTEGER NOT NULL DEFAULT 0,
  max_steps INTEGER NOT NULL,
  stop_reason TEXT NOT NULL DEFAULT '',
  error_reason TEXT NOT NULL DEFAULT '',
  error_text TEXT NOT NULL DEFAULT '',
  input_message TEXT NOT NULL DEFAULT '',
  final_message TEXT NOT NULL DEFAULT '',
  usage TEXT NOT NULL DEFAULT '{}',
  labels TEXT NOT NULL DEFAULT '{}',
  metadata TEXT NOT NULL DEFAULT '{}',
  cancel_on_disconnect REAL,
  create_time INTEGER NOT NULL,
  start_time INTEGER NOT NULL DEFAULT 0,
  finish_time INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (scope, thread_id, turn_id),
  FOREIGN KEY (scope, thread_id) REFERENCES threads (scope, thread_id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX turn_by_request ON turns (scope, request_id);
CREATE UNIQUE INDEX one_live_turn ON turns (scope, thread_id) WHERE state IN ('running', 'waiting');
CREATE INDEX queued_turns ON turns (scope, thread_id, queue_position) WHERE state = 'queued';
CREATE INDEX turns_by_time ON turns (scope, create_time);

-- The fence of a turn's log: written only by the owner and by the claim.
CREATE TABLE turn_heads (
  scope TEXT NOT NULL,
  turn_id TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  next_sequence INTEGER NOT NULL,
  first_kept_sequence INTEGER NOT NULL DEFAULT 1,
  PRIMARY KEY (scope, turn_id)
) WITHOUT ROWID;

-- A page is a serialised RunTurnResponse: encoded once, stored, and sent as the same bytes. With a rowid, as
-- large rows inside the key's tree cost twice as much per commit.
CREATE TABLE pages (
  scope TEXT NOT NULL,
  turn_id TEXT NOT NULL,
  first_sequence INTEGER NOT NULL,
  last_sequence INTEGER NOT NULL,
  flags INTEGER NOT NULL DEFAULT 0,
  body BLOB NOT NULL,
  PRIMARY KEY (scope, turn_id, first_sequence),
  CHECK (last_sequence >= first_sequence)
);

CREATE TABLE messages (
  scope TEXT NOT NULL,
  thread_id TEXT NOT NULL,
  position INTEGER NOT NULL,
  message_id TEXT NOT NULL,
  role TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
  turn_id TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('open', 'final')),
  visibility TEXT NOT NULL DEFAULT 'visible' CHECK (visibility IN ('visible', 'hidden', 'superseded')),
  origin TEXT NOT NULL DEFAULT '',
  interrupted_reason TEXT NOT NULL DEFAULT '',
  create_time INTEGER NOT NULL,
  update_time INTEGER NOT NULL,
  PRIMARY KEY (scope, thread_id, position),
  FOREIGN KEY (scope, thread_id) REFERENCES threads (scope, thread_id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX message_by_id ON messages (scope, thread_id, message_id);
CREATE UNIQUE INDEX one_open_message ON messages (scope, thread_id) WHERE status = 'open';

-- Parts of all but tool calls; `begun` names tools that an interrupted answer had begun to call.
CREATE TABLE message_parts (
  scope TEXT NOT NULL,
  thread_id TEXT NOT NULL,
  message_id TEXT NOT NULL,
  part_index INTEGER NOT NULL,
  step INTEGER NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('text', 'blob', 'uri', 'reasoning', 'begun')),
  text TEXT NOT NULL DEFAULT '',
  data BLOB,
  extra TEXT NOT NULL DEFAULT '{}',
  PRIMARY KEY (scope, thread_id, message_id, part_index)
) WITHOUT ROWID;

CREATE TABLE tool_calls (
  scope TEXT NOT NULL,
  thread_id TEXT NOT NULL,
  message_id TEXT NOT NULL,
  part_index INTEGER NOT NULL,
  call_id TEXT NOT NULL,
  provider_call_id TEXT NOT NULL,
  turn_id TEXT NOT NULL,
  step INTEGER NOT NULL,
  call_index INTEGER NOT NULL,
  tool_name TEXT NOT NULL,
  arguments TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('ready', 'started', 'finished')),
  outcome TEXT NOT NULL DEFAULT '',
  content TEXT NOT NULL DEFAULT '',
  is_error INTEGER NOT NULL DEFAULT 0,
  extra TEXT NOT NULL DEFAULT '{}',
  PRIMARY KEY (scope, thread_id, message_id, part_index),
  CHECK ((state = 'finished') = (outcome <> ''))
) WITHOUT ROWID;
CREATE UNIQUE INDEX tool_call_by_id ON tool_calls (scope, thread_id, call_id);

-- Commands that took effect, in the same unit as the effect.
CREATE TABLE applied_commands (
  scope TEXT NOT NULL,
  command_id TEXT NOT NULL,
  turn TEXT NOT NULL,
  kind TEXT NOT NULL,
  duplicate_of TEXT NOT NULL DEFAULT '',
  sequence INTEGER NOT NULL,
  create_time INTEGER NOT NULL,
  PRIMARY KEY (scope, command_id)
) WITHOUT ROWID;

-- Request ids of everything but turns, kept for 24 hours.
CREATE TABLE requests (
  scope TEXT NOT NULL,
  operation TEXT NOT NULL,
  request_id TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  result TEXT NOT NULL,
  create_time INTEGER NOT NULL,
  PRIMARY KEY (scope, operation, request_id)
) WITHOUT ROWID;
CREATE INDEX requests_by_time ON requests (create_time);
