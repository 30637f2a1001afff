"""`paddock instances`: graphs that are asked in Cypher. One file for each thing that can be done."""

from cyclopts import App

from paddock.instances.commands.algorithms import algo
from paddock.instances.commands.asking import query, schema
from paddock.instances.commands.changing import delete, extend, share
from paddock.instances.commands.creating import create, reopen
from paddock.instances.commands.looking import events, list_instances, logs, show_instance

app = App(name="instances", help="Graphs that are asked in Cypher.")
app.command(create)
app.command(list_instances, name="list")
app.command(show_instance, name="show")
app.command(query)
app.command(schema)
app.command(algo)
app.command(logs)
app.command(events)
app.command(extend)
app.command(reopen)
app.command(share)
app.command(delete)
