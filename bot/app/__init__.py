"""The composition root: reads settings, builds the components, runs them together, shuts them down.

operator_files   the operator's files               models     the choice of language models
database         locked, opened, migrated           services   stores, connections, rules, commands
runtime          everything that turns need        chat       `countersign chat`
service          `countersign run`                  doctor     `countersign doctor`

Everything is built here and nowhere else; components get plain values and each other. Libraries that load slowly are
loaded in a thread, when their user is built.
"""
