-- The processes that own threads. A thread is held as long as the row of its owner is there and not expired; one
-- row per process, so that renewing costs the same for one turn and for thousands.
CREATE TABLE owners (
  owner TEXT NOT NULL PRIMARY KEY,
  runtime_id TEXT NOT NULL,
  expire_time INTEGER NOT NULL
);

ALTER TABLE threads ADD COLUMN lease TEXT NOT NULL DEFAULT '' CHECK (lease IN ('', 'run', 'admin'));
ALTER TABLE threads ADD COLUMN queue_version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE threads ADD COLUMN metadata_version INTEGER NOT NULL DEFAULT 1;
-- Changes up to this version are known to nobody any more: who has an older one reads the thread again.
ALTER TABLE threads ADD COLUMN snapshot_version INTEGER NOT NULL DEFAULT 0;
UPDATE threads SET snapshot_version = version;
CREATE INDEX held_threads ON threads (owner) WHERE owner <> '';
UPDATE threads SET lease = 'run' WHERE owner <> '';

-- `change_version` is the thread's version of the last visible change of the row: what WatchThread follows.
-- `recoveries` counts takeovers from dead owners since the last committed step. `progress` is the engine's own
-- JSON, written with each step. Times are of the store's clock: `deadline` ends the turn, `wake_time` is when a
-- turn that nobody runs has to be looked at, `suspend_time` is when it began to wait.
ALTER TABLE turns ADD COLUMN change_version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN origin TEXT NOT NULL DEFAULT 'request'
  CHECK (origin IN ('request', 'regenerate', 'retry'));
ALTER TABLE turns ADD COLUMN retry_of TEXT NOT NULL DEFAULT '';
ALTER TABLE turns ADD COLUMN recoveries INTEGER NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN progress TEXT NOT NULL DEFAULT '{}';
ALTER TABLE turns ADD COLUMN stop_request TEXT NOT NULL DEFAULT '';
ALTER TABLE turns ADD COLUMN turn_timeout REAL NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN deadline INTEGER NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN wake_time INTEGER NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN suspend_time INTEGER NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN pruned INTEGER NOT NULL DEFAULT 0;
CREATE INDEX turns_to_wake ON turns (wake_time) WHERE wake_time > 0;
CREATE INDEX turns_to_stop ON turns (scope, thread_id) WHERE stop_request <> '';
CREATE INDEX turns_to_prune ON turns (finish_time) WHERE finish_time > 0 AND pruned = 0;
CREATE INDEX all_queued_turns ON turns (state) WHERE state = 'queued';
CREATE INDEX applied_commands_by_time ON applied_commands (create_time);

-- `create_version` is the `change_version` that a message was added with.
ALTER TABLE messages ADD COLUMN create_version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE messages ADD COLUMN change_version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE messages ADD COLUMN rewrite_id TEXT NOT NULL DEFAULT '';
CREATE INDEX changed_messages ON messages (scope, thread_id, change_version);
CREATE INDEX changed_turns ON turns (scope, thread_id, change_version);

-- A cancel that comes too late names the one that was in time.
CREATE INDEX applied_by_turn ON applied_commands (scope, turn);

-- A call may wait for an answer, and may have been started more than once.
CREATE TABLE calls (
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
  state TEXT NOT NULL CHECK (state IN ('ready', 'waiting', 'started', 'finished')),
  attempt INTEGER NOT NULL DEFAULT 1,
  outcome TEXT NOT NULL DEFAULT '',
  content TEXT NOT NULL DEFAULT '',
  is_error INTEGER NOT NULL DEFAULT 0,
  extra TEXT NOT NULL DEFAULT '{}',
  PRIMARY KEY (scope, thread_id, message_id, part_index),
  CHECK ((state = 'finished') = (outcome <> ''))
) WITHOUT ROWID;
INSERT INTO calls (scope, thread_id, message_id, part_index, call_id, provider_call_id, turn_id, step, call_index,
  tool_name, arguments, state, outcome, content, is_error, extra)
  SELECT scope, thread_id, message_id, part_index, call_id, provider_call_id, turn_id, step, call_index,
  tool_name, arguments, state, outcome, content, is_error, extra FROM tool_calls;
DROP TABLE tool_calls;
ALTER TABLE calls RENAME TO tool_calls;
CREATE UNIQUE INDEX tool_call_by_id ON tool_calls (scope, thread_id, call_id);
CREATE INDEX open_calls ON tool_calls (scope, thread_id, message_id) WHERE state <> 'finished';

-- What somebody must answer. `answer` is JSON, `answer_request` the request id it came with; `told` is 1 once the
-- turn's log has the event that tells the end of the action.
CREATE TABLE actions (
  scope TEXT NOT NULL,
  thread_id TEXT NOT NULL,
  turn_id TEXT NOT NULL,
  action_id TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('approval', 'suspend', 'client-tool', 'clarification', 'continue')),
  state TEXT NOT NULL
    CHECK (state IN ('open', 'approved', 'rejected', 'answered', 'expired', 'cancelled', 'voided')),
  call_id TEXT NOT NULL DEFAULT '',
  tool_name TEXT NOT NULL DEFAULT '',
  arguments TEXT NOT NULL DEFAULT '{}',
  digest TEXT NOT NULL DEFAULT '',
  risk_tier TEXT NOT NULL DEFAULT 'normal',
  question TEXT NOT NULL DEFAULT '',
  payload TEXT NOT NULL DEFAULT '',
  answer_schema TEXT NOT NULL DEFAULT '',
  required_role TEXT NOT NULL DEFAULT 'approver',
  agent TEXT NOT NULL DEFAULT '',
  answer TEXT NOT NULL DEFAULT '',
  answer_request TEXT NOT NULL DEFAULT '',
  told INTEGER NOT NULL DEFAULT 0,
  resolver TEXT NOT NULL DEFAULT '',
  create_time INTEGER NOT NULL,
  expire_time INTEGER NOT NULL DEFAULT 0,
  resolve_time INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (scope, thread_id, turn_id, action_id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX one_open_action ON actions (scope, thread_id, call_id) WHERE state = 'open';
CREATE INDEX action_by_answer ON actions (scope, answer_request) WHERE answer_request <> '';
CREATE INDEX actions_by_time ON actions (scope, create_time);
CREATE INDEX open_actions ON actions (scope, create_time) WHERE state = 'open';
CREATE INDEX resolved_actions ON actions (scope, resolve_time) WHERE resolve_time > 0;

-- Edits of a thread's history, in the transaction that made them; `observe_time` is 0 until observers were told.
CREATE TABLE history_rewrites (
  scope TEXT NOT NULL,
  thread_id TEXT NOT NULL,
  rewrite_id TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('regenerate', 'retry', 'visibility')),
  subject TEXT NOT NULL DEFAULT '',
  base_version INTEGER NOT NULL,
  new_version INTEGER NOT NULL,
  changes TEXT NOT NULL DEFAULT '{}',
  create_time INTEGER NOT NULL,
  observe_time INTEGER NOT NULL DEFAULT 0,
  observe_errors TEXT NOT NULL DEFAULT '[]',
  PRIMARY KEY (scope, thread_id, rewrite_id)
) WITHOUT ROWID;

-- Summaries that stand for the older part of a thread in what models read, up to a step of a message. A row is
-- deleted when what it covers changes. `detail` is JSON: what is kept word for word, and sizes.
CREATE TABLE compactions (
  scope TEXT NOT NULL,
  thread_id TEXT NOT NULL,
  compaction_id TEXT NOT NULL,
  turn_id TEXT NOT NULL,
  through_position INTEGER NOT NULL,
  through_message TEXT NOT NULL,
  through_step INTEGER NOT NULL,
  message_count INTEGER NOT NULL,
  summary TEXT NOT NULL,
  detail TEXT NOT NULL DEFAULT '{}',
  create_time INTEGER NOT NULL,
  PRIMARY KEY (scope, thread_id, compaction_id)
) WITHOUT ROWID;

-- Threads whose content is still to be removed, here and at the executor.
CREATE TABLE purges (
  scope TEXT NOT NULL,
  thread_id TEXT NOT NULL,
  create_time INTEGER NOT NULL,
  PRIMARY KEY (scope, thread_id)
) WITHOUT ROWID;

-- The tail of a thread, as far as a database can hold it: one open message and nothing behind it; calls without
-- a result only in it; a result that stands does not change.
-- engine: sqlite
CREATE TRIGGER nothing_behind_an_open_message BEFORE INSERT ON messages
  WHEN EXISTS (SELECT 1 FROM messages m WHERE m.scope = NEW.scope AND m.thread_id = NEW.thread_id
    AND m.status = 'open')
BEGIN SELECT RAISE(ABORT, 'a message behind an open one'); END;
CREATE TRIGGER no_open_call_in_a_closed_message BEFORE UPDATE OF status ON messages
  WHEN NEW.status = 'final' AND EXISTS (SELECT 1 FROM tool_calls c WHERE c.scope = NEW.scope
    AND c.thread_id = NEW.thread_id AND c.message_id = NEW.message_id AND c.state <> 'finished')
BEGIN SELECT RAISE(ABORT, 'a closed message with an open call'); END;
CREATE TRIGGER open_calls_only_in_the_open_message BEFORE INSERT ON tool_calls
  WHEN NEW.state <> 'finished' AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.scope = NEW.scope
    AND m.thread_id = NEW.thread_id AND m.message_id = NEW.message_id AND m.status = 'open')
BEGIN SELECT RAISE(ABORT, 'an open call outside the open message'); END;
CREATE TRIGGER a_result_stands BEFORE UPDATE ON tool_calls
  WHEN OLD.state = 'finished' AND (NEW.state <> 'finished' OR NEW.outcome <> OLD.outcome
    OR NEW.content <> OLD.content)
BEGIN SELECT RAISE(ABORT, 'a result that was changed'); END;
-- engine: postgresql
CREATE FUNCTION nothing_behind_an_open_message() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM messages m WHERE m.scope = NEW.scope AND m.thread_id = NEW.thread_id
      AND m.status = 'open') THEN
    RAISE check_violation USING MESSAGE = 'a message behind an open one';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER nothing_behind_an_open_message BEFORE INSERT ON messages
  FOR EACH ROW EXECUTE FUNCTION nothing_behind_an_open_message();
CREATE FUNCTION no_open_call_in_a_closed_message() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM tool_calls c WHERE c.scope = NEW.scope AND c.thread_id = NEW.thread_id
      AND c.message_id = NEW.message_id AND c.state <> 'finished') THEN
    RAISE check_violation USING MESSAGE = 'a closed message with an open call';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER no_open_call_in_a_closed_message BEFORE UPDATE OF status ON messages
  FOR EACH ROW WHEN (NEW.status = 'final') EXECUTE FUNCTION no_open_call_in_a_closed_message();
CREATE FUNCTION open_calls_only_in_the_open_message() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM messages m WHERE m.scope = NEW.scope AND m.thread_id = NEW.thread_id
      AND m.message_id = NEW.message_id AND m.status = 'open') THEN
    RAISE check_violation USING MESSAGE = 'an open call outside the open message';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER open_calls_only_in_the_open_message BEFORE INSERT ON tool_calls
  FOR EACH ROW WHEN (NEW.state <> 'finished') EXECUTE FUNCTION open_calls_only_in_the_open_message();
CREATE FUNCTION a_result_stands() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE check_violation USING MESSAGE = 'a result that was changed';
END $$;
CREATE TRIGGER a_result_stands BEFORE UPDATE ON tool_calls
  FOR EACH ROW WHEN (OLD.state = 'finished' AND (NEW.state <> 'finished' OR NEW.outcome <> OLD.outcome
    OR NEW.content <> OLD.content)) EXECUTE FUNCTION a_result_stands();
-- engine: all
