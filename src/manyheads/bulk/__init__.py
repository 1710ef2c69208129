"""Jobs over many lines of text, run by several worker processes, on one machine or on a Ray cluster.

    shards -> chunks -> coordinator -> workers (local processes or Ray actors) -> shards or stdout

The coordinator never imports torch. A worker is an executor's process that has opened a job.
"""
