"""The battery: real processes on real servers under injected faults, whose recorded histories are checked afterwards.

deployments/  the servers: one of each store, and groups of several nodes
workloads/    what the processes do, and which promise their observations must keep: one module each
faults/       what is done to processes, servers, connections, clocks and stores: one module per family
mutants/      bugs that are planted in the library, which the battery must find
soak/         thirty minutes of all primitives, in which nothing may grow
"""
