"""The messages of Flight SQL and of Flight sessions, as classes of Protobuf.

Only the messages that the server reads or writes are here, with the fields of the protocol that have a meaning for it;
Protobuf skips the others. They live in a pool of their own, so that another package may define them too.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from quacklake.errors import InputError

SQL = "arrow.flight.protocol.sql"
FLIGHT = "arrow.flight.protocol"

#: A message per line: its name, then each field as name:type=number. "?" marks an optional field, "*" a repeated one.
_SPECIFIED = {
    SQL: """
        CommandGetSqlInfo info:uint32*=1
        CommandGetXdbcTypeInfo data_type:int32?=1
        CommandGetCatalogs
        CommandGetDbSchemas catalog:string?=1 db_schema_filter_pattern:string?=2
        CommandGetTables catalog:string?=1 db_schema_filter_pattern:string?=2 table_name_filter_pattern:string?=3 \
table_types:string*=4 include_schema:bool=5
        CommandGetTableTypes
        CommandGetPrimaryKeys catalog:string?=1 db_schema:string?=2 table:string=3
        CommandGetExportedKeys catalog:string?=1 db_schema:string?=2 table:string=3
        CommandGetImportedKeys catalog:string?=1 db_schema:string?=2 table:string=3
        CommandGetCrossReference pk_catalog:string?=1 pk_db_schema:string?=2 pk_table:string=3 \
fk_catalog:string?=4 fk_db_schema:string?=5 fk_table:string=6
        ActionCreatePreparedStatementRequest query:string=1 transaction_id:bytes?=2
        ActionCreatePreparedStatementResult prepared_statement_handle:bytes=1 dataset_schema:bytes=2 \
parameter_schema:bytes=3
        ActionClosePreparedStatementRequest prepared_statement_handle:bytes=1
        ActionBeginTransactionRequest
        ActionBeginTransactionResult transaction_id:bytes=1
        ActionEndTransactionRequest transaction_id:bytes=1 action:int32=2
        ActionCancelQueryRequest info:bytes=1
        ActionCancelQueryResult result:int32=1
        CommandStatementQuery query:string=1 transaction_id:bytes?=2
        CommandStatementUpdate query:string=1 transaction_id:bytes?=2
        CommandPreparedStatementQuery prepared_statement_handle:bytes=1
        CommandPreparedStatementUpdate prepared_statement_handle:bytes=1
        TableDefinitionOptions if_not_exist:int32=1 if_exists:int32=2
        IngestOption key:string=1 value:string=2
        CommandStatementIngest table_definition_options:TableDefinitionOptions=1 table:string=2 schema:string?=3 \
catalog:string?=4 temporary:bool=5 transaction_id:bytes?=6 options:IngestOption*=1000
        DoPutUpdateResult record_count:int64=1
        DoPutPreparedStatementResult prepared_statement_handle:bytes?=1
    """,
    FLIGHT: """
        Ticket ticket:bytes=1
        FlightEndpoint ticket:Ticket=1
        FlightInfo endpoint:FlightEndpoint*=3
        CancelFlightInfoRequest info:FlightInfo=1
        CancelFlightInfoResult status:int32=1
        SessionStrings values:string*=1
        SessionOptionValue string_value:string?=1 bool_value:bool?=2 int64_value:sfixed64?=3 double_value:double?=4 \
string_list_value:SessionStrings=5
        SessionOption key:string=1 value:SessionOptionValue=2
        SetSessionOptionsRequest session_options:SessionOption*=1
        SessionError value:int32=1
        SessionOptionError key:string=1 value:SessionError=2
        SetSessionOptionsResult errors:SessionOptionError*=1
        GetSessionOptionsRequest
        GetSessionOptionsResult session_options:SessionOption*=1
        CloseSessionRequest
        CloseSessionResult status:int32=1
    """,
}
_Field = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    name: getattr(_Field, f"TYPE_{name.upper()}")
    for name in ("string", "bytes", "bool", "int32", "int64", "uint32", "sfixed64", "double")
}


def _message(package: str, line: str) -> descriptor_pb2.DescriptorProto:
    name, *specified = line.split()
    made = descriptor_pb2.DescriptorProto(name=name)
    for text in specified:
        field_name, _, rest = text.partition(":")
        type_, _, number = rest.partition("=")
        bare = type_.rstrip("?*")
        field = made.field.add(name=field_name, number=int(number), label=_Field.LABEL_OPTIONAL)
        if type_.endswith("*"):
            field.label = _Field.LABEL_REPEATED
        if bare in _TYPES:
            field.type = _TYPES[bare]
        else:
            field.type, field.type_name = _Field.TYPE_MESSAGE, f".{package}.{bare}"
        if type_.endswith("?"):
            field.proto3_optional, field.oneof_index = True, len(made.oneof_decl)
            made.oneof_decl.add(name=f"_{field_name}")
    return made


def _classes() -> dict[str, Any]:
    pool, found = descriptor_pool.DescriptorPool(), {}
    for package, lines in _SPECIFIED.items():
        messages = [_message(package, line) for line in lines.strip().splitlines()]
        file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
        file.message_type.extend(messages)
        pool.Add(file)
        for message in messages:
            descriptor = pool.FindMessageTypeByName(f"{package}.{message.name}")
            found[message.name] = message_factory.GetMessageClass(descriptor)
    return found


MESSAGES: dict[str, Any] = _classes()
"""The class of each message by its name."""


def parse(name: str, data: bytes) -> Any:
    """Return a message. Raise ``InputError`` for bytes that are none."""
    try:
        return MESSAGES[name].FromString(data)
    except (DecodeError, ValueError, RecursionError):
        raise InputError(f"these bytes are no {name} of Flight SQL") from None


def unpack(data: bytes) -> tuple[str, Any]:
    """Return the name and the value of a message of Flight SQL that is packed as ``Any``. Raise ``InputError``."""
    try:
        packed = any_pb2.Any.FromString(data)
    except (DecodeError, ValueError, RecursionError):
        raise InputError("these bytes are no message of Flight SQL") from None
    name = packed.type_url.rpartition("/")[2].removeprefix(f"{SQL}.")
    if name not in MESSAGES or not packed.type_url.endswith(f"{SQL}.{name}"):
        raise InputError(f"there is no message {packed.type_url!r:.100} that this server knows")
    return name, parse(name, packed.value)


def pack(name: str, **values: Any) -> bytes:
    """Return a message of Flight SQL as ``Any``."""
    value = MESSAGES[name](**values).SerializeToString()
    return bytes(any_pb2.Any(type_url=f"type.googleapis.com/{SQL}.{name}", value=value).SerializeToString())
