import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.rpc import status_pb2 as _status_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GraphState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GRAPH_STATE_UNSPECIFIED: _ClassVar[GraphState]
    GRAPH_STATE_PENDING: _ClassVar[GraphState]
    GRAPH_STATE_RUNNING: _ClassVar[GraphState]
    GRAPH_STATE_PAUSED: _ClassVar[GraphState]
    GRAPH_STATE_STOPPED: _ClassVar[GraphState]
    GRAPH_STATE_CRASHED: _ClassVar[GraphState]
    GRAPH_STATE_COMPLETED: _ClassVar[GraphState]
    GRAPH_STATE_FAILED: _ClassVar[GraphState]
GRAPH_STATE_UNSPECIFIED: GraphState
GRAPH_STATE_PENDING: GraphState
GRAPH_STATE_RUNNING: GraphState
GRAPH_STATE_PAUSED: GraphState
GRAPH_STATE_STOPPED: GraphState
GRAPH_STATE_CRASHED: GraphState
GRAPH_STATE_COMPLETED: GraphState
GRAPH_STATE_FAILED: GraphState

class Graph(_message.Message):
    __slots__ = ("name", "definition", "state", "nodes", "error", "create_time", "finish_time", "version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    FINISH_TIME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    definition: str
    state: GraphState
    nodes: _containers.RepeatedCompositeFieldContainer[GraphNode]
    error: _status_pb2.Status
    create_time: _timestamp_pb2.Timestamp
    finish_time: _timestamp_pb2.Timestamp
    version: int
    def __init__(self, name: _Optional[str] = ..., definition: _Optional[str] = ..., state: _Optional[_Union[GraphState, str]] = ..., nodes: _Optional[_Iterable[_Union[GraphNode, _Mapping]]] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., finish_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., version: _Optional[int] = ...) -> None: ...

class GraphNode(_message.Message):
    __slots__ = ("node", "agent", "state", "turns", "pending_deliveries")
    NODE_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    PENDING_DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    node: str
    agent: str
    state: GraphState
    turns: _containers.RepeatedScalarFieldContainer[str]
    pending_deliveries: int
    def __init__(self, node: _Optional[str] = ..., agent: _Optional[str] = ..., state: _Optional[_Union[GraphState, str]] = ..., turns: _Optional[_Iterable[str]] = ..., pending_deliveries: _Optional[int] = ...) -> None: ...

class StartGraphRequest(_message.Message):
    __slots__ = ("request_id", "definition", "input", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    definition: str
    input: str
    labels: _containers.ScalarMap[str, str]
    def __init__(self, request_id: _Optional[str] = ..., definition: _Optional[str] = ..., input: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class StartGraphResponse(_message.Message):
    __slots__ = ("graph",)
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    graph: Graph
    def __init__(self, graph: _Optional[_Union[Graph, _Mapping]] = ...) -> None: ...

class GetGraphRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetGraphResponse(_message.Message):
    __slots__ = ("graph",)
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    graph: Graph
    def __init__(self, graph: _Optional[_Union[Graph, _Mapping]] = ...) -> None: ...

class ListGraphsRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "filter")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    filter: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., filter: _Optional[str] = ...) -> None: ...

class ListGraphsResponse(_message.Message):
    __slots__ = ("graphs", "next_page_token")
    GRAPHS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    graphs: _containers.RepeatedCompositeFieldContainer[Graph]
    next_page_token: str
    def __init__(self, graphs: _Optional[_Iterable[_Union[Graph, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class WatchGraphRequest(_message.Message):
    __slots__ = ("name", "after_version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    AFTER_VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    after_version: int
    def __init__(self, name: _Optional[str] = ..., after_version: _Optional[int] = ...) -> None: ...

class WatchGraphResponse(_message.Message):
    __slots__ = ("graph",)
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    graph: Graph
    def __init__(self, graph: _Optional[_Union[Graph, _Mapping]] = ...) -> None: ...
