"""The composition root: reads settings, builds the parts, runs them together, shuts them down.

    operator_files   what the operator has written    models     which language model
    database         held, opened, migrated           house      everything that turns need, built and running
    chat             the terminal's program           service    `countersign run`

Everything is built here and nowhere else; the parts get plain values and each other. Libraries that take long to load
are loaded in a thread, when what needs them is built.
"""
