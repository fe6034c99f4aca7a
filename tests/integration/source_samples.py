"""Samples from the document that the jobs API is based on, and the objects that they assume."""

from __future__ import annotations

from typing import Any

from holdfast.jobs import get_current_job_id

LOAD = """
async def load_and_process_data(source: str):
    data_obj = await load_data(source)
    # Create validation task with actual table ID
    await add_task_to_current_job(
        entrypoint="myapp.processors.validate_data",
        kwargs={"input_obj": data_obj.table_id}
    )
"""

MAP = '''
async def map(callback: str, obj: Object) -> Object:
    """
    Apply callback to each element of obj in parallel.
    Creates one task per chunk of data using offset/limit.
    """
    from aaiclick.orchestration import add_task_to_current_job

    # Get current job context
    job_id = get_current_job_id()

    # Get total row count without reading data
    total_rows = await obj.count()
    chunk_size = 10000  # Configurable chunk size

    # Create task for each chunk using offset/limit
    # Note: Requires View concept (see Known Design Gaps)
    for offset in range(0, total_rows, chunk_size):
        await add_task_to_current_job(
            job_id=job_id,
            entrypoint=callback,
            kwargs={
                "table_id": obj.table_id,
                "offset": offset,
                "limit": chunk_size
            }
        )

    # Return handle to future results
    num_chunks = (total_rows + chunk_size - 1) // chunk_size
    return await create_result_collector(job_id, num_chunks)
'''


ENVIRONMENT = """
POSTGRES_HOST=localhost
POSTGRES_PORT=5432
POSTGRES_USER=aaiclick
POSTGRES_PASSWORD=secret
POSTGRES_DB=aaiclick_orchestration

# Worker settings
WORKER_HEARTBEAT_INTERVAL=30  # seconds
WORKER_TASK_TIMEOUT=3600      # seconds
WORKER_MAX_RETRIES=3

# Job settings
JOB_DEFAULT_TIMEOUT=86400     # seconds (24 hours)
"""


class Object:
    """An object that the samples assume: a table with an id and a count."""

    def __init__(self, table_id: str, rows: int = 0) -> None:
        self.table_id = table_id
        self.rows = rows

    async def count(self) -> int:
        return self.rows


async def load_data(source: str) -> Object:
    return Object(f"tbl_{source}")


async def create_result_collector(job_id: str, chunks: int) -> dict[str, Any]:
    return {"job_id": job_id, "chunks": chunks}


def defined(sample: str, name: str) -> Any:
    """Return the function that a sample defines."""
    import holdfast.jobs as jobs

    names: dict[str, Any] = {name: getattr(jobs, name) for name in jobs.__all__}
    names |= {"Object": Object, "load_data": load_data, "get_current_job_id": get_current_job_id}
    names["create_result_collector"] = create_result_collector
    exec(compile(renamed(sample), name, "exec", dont_inherit=True), names)
    return names[name]


def renamed(sample: str) -> str:
    return sample.replace("aaiclick.orchestration", "holdfast.jobs")
