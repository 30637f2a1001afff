"""`paddock jobs`: submit, look at, cancel and retry. One file for each thing that can be done."""

from cyclopts import App

from paddock.cli.jobs.acting import cancel, retry, run_now
from paddock.cli.jobs.listing import list_jobs
from paddock.cli.jobs.logs import logs
from paddock.cli.jobs.showing import show_job, timeline
from paddock.cli.jobs.submitting import submit
from paddock.cli.jobs.watching import watch_jobs

app = App(name="jobs", help="Submit, show, cancel and retry jobs.")
app.command(list_jobs, name="list")
app.command(show_job, name="show")
app.command(watch_jobs, name="watch")
app.command(submit)
app.command(cancel)
app.command(retry)
app.command(run_now, name="run-now")
app.command(logs)
app.command(timeline)
