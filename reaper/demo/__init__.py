"""The demo: a small world in which workers die, on servers of its own.

`scenario` is the plan, `holder` a process that leases jobs and dies, `handlers` what is called for
the dead, `stage` runs it all, `outcomes` reads the database, `story` and `screen` tell it, and
`verification` compares what was found with the plan.
"""
