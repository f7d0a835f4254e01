"""The composition root: reads settings, builds the components, runs them together, shuts them down.

    runtime         all components of turns, in order   service         `countersign run`
    chat            `countersign chat`                  administration  `countersign servers`, `usage` and `tokens`
    doctor          `countersign doctor`                audit           `countersign audit`
    operator_files  the operator's files                models          the choice of language models
    database        locked, opened, migrated            config_reload   configuration and files, applied
    process         its name, health and counters       operations      the operations channel

Everything is built here and nowhere else; components get plain values and each other. Libraries that load slowly are
loaded when their user is built.
"""
