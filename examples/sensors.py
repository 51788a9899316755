"""Sensor readings with pandas and polars: bulk loads, small appends in between, and corrections.

pip install "quacklake[pandas,polars]"
python examples/sensors.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa

import quacklake

DAYS = pd.date_range("2025-01-01", periods=7, freq="D")


def readings(day: pd.Timestamp) -> pd.DataFrame:
    """A day of readings, one a minute from each of three sensors."""
    times = pd.date_range(day, periods=24 * 60, freq="min", unit="us")
    frames = [
        pd.DataFrame({"sensor": sensor, "time": times, "celsius": 15.0 + sensor + times.hour * 0.25})
        for sensor in (1, 2, 3)
    ]
    return pd.concat(frames, ignore_index=True)


def main(directory: Path) -> None:
    with quacklake.connect(f"sqlite:///{directory / 'lake.db'}", data_path=directory / "data") as lake:
        schema = {"sensor": pa.int32(), "time": pa.timestamp("us"), "celsius": pa.float64()}
        table = lake.create_table("readings", schema)
        for day in DAYS:
            table.append(readings(day))

        # A few late rows from a polars frame: they stay in the catalog and need no file of their own.
        late = pl.DataFrame({"sensor": [1, 2], "time": [DAYS[-1] + pd.Timedelta(days=1)] * 2, "celsius": [16.5, 17.5]})
        table.append(late)
        plan = table.plan()
        inlined = 0 if plan.inlined is None else plan.inlined.num_rows
        print(f"{table.count():,} readings in {plan.files.num_rows} files, {inlined} in the catalog")

        # Sensor 3 was off by half a degree on the second day.
        wrong = "sensor = 3 AND time >= TIMESTAMP '2025-01-02' AND time < TIMESTAMP '2025-01-03'"
        before = lake.current_snapshot()
        corrected = table.update({"celsius": quacklake.expr("celsius - 0.5")}, wrong)
        print(f"corrected {corrected:,} readings, reading {table.plan(wrong).files.num_rows} files")

        # The same question to now and then; only two columns are read.
        for name, view in (("now", lake), ("before", lake.at(version=before))):
            frame = view.table("readings").to_polars(columns=["sensor", "celsius"], where=wrong)
            print(f"{name}: sensor 3 averaged {frame['celsius'].mean():.2f} °C on the second day")

        by_sensor = table.to_pandas(columns=["sensor", "celsius"]).groupby("sensor").mean()
        print(by_sensor.round(2))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(name))
