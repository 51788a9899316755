"""A client in a process of its own, to be killed: it appends batches, or reads the first batch of a query."""

from __future__ import annotations

import sys
import time

import pyarrow as pa
from pyarrow import flight

SCHEMA = pa.schema([("i", pa.int64())])


def main(location: str, token: str, what: str, *arguments: str) -> None:
    """Do what is asked, say so, and wait for the end."""
    client = flight.connect(location)
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])
    if what == "append":
        writer, _ = client.do_put(flight.FlightDescriptor.for_path("main", arguments[0]), SCHEMA, options=options)
        for start in range(0, 4000, 1000):
            writer.write_batch(pa.record_batch([pa.array(range(start, start + 1000), pa.int64())], SCHEMA))
    else:
        info = client.get_flight_info(flight.FlightDescriptor.for_command(arguments[0]), options=options)
        reader = client.do_get(info.endpoints[0].ticket, options=options)  # a reader that nobody holds cancels its call
        reader.read_chunk()
    print("ready", flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main(*sys.argv[1:])
