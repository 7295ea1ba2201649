"""Environment variables by which a job is told of processes and devices to do it with.

They stand by themselves, since who only hands a job over starts hundreds of times.
"""

# Exactly so many processes; or one for each visible GPU, but at most so many.
PROCESSES, GPUS = "PTQ_DYNAMICS_PROCESSES", "PTQ_DYNAMICS_GPUS"
# How accelerate is to spread a model that fits on no device.
DEVICE_MAP = "PTQ_DYNAMICS_DEVICE_MAP"
