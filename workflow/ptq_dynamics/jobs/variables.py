"""Environment variables by which a job is asked for the processes that do it together.

They stand by themselves, since who only hands a job over starts hundreds of times.
"""

# Exactly so many processes; or one for each visible GPU, but at most so many. What they share out.
PROCESSES, GPUS = "PTQ_DYNAMICS_PROCESSES", "PTQ_DYNAMICS_GPUS"
SHARDING = "PTQ_DYNAMICS_SHARDING"
