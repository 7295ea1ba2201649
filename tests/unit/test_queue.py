"""What SLURM says of tasks that have ended, in the words of version 22.05."""

import pytest
from ptq_dynamics.cluster.queue import by_accounts, by_controller

# Of 3 all was cancelled before it began; of 4 the third of four; 5 has begun in part.
ACCOUNTS = {
    "3": [("3_[0]", "CANCELLED by 0")],
    "4": [("4_[0-1,3]", "PENDING")],
    "5": [("5_0", "COMPLETED"), ("5_1", "NODE_FAIL"), ("5_1", "FAILED"), ("5_[2-9%2]", "PENDING")],
}
SHOWN = {
    "3": "JobId=3 ArrayJobId=3 ArrayTaskId=4294967294 JobName=a JobState=CANCELLED Reason=None\n",
    "4": "JobId=4 ArrayJobId=4 ArrayTaskId=0-1,3 JobName=a JobState=PENDING Reason=Resources\n",
    "5": "JobId=5 ArrayJobId=5 ArrayTaskId=2-9%2 JobState=PENDING\n"
    "JobId=6 ArrayJobId=5 ArrayTaskId=1 JobState=FAILED ExitCode=1:0 Command=(null) A=b=c\n",
}


@pytest.mark.parametrize(
    ("number", "by_accounting", "by_memory"),
    [
        ("3_0", "CANCELLED by 0", "CANCELLED"),
        # The controller alone forgets tasks that ended minutes ago as well.
        ("4_2", "CANCELLED", None),
        ("4_3", None, None),
        ("5_0", "COMPLETED", None),
        ("5_1", "FAILED", "FAILED"),
        ("5_4", None, None),
    ],
)
def test_a_task_has_ended_as_its_array_says(number, by_accounting, by_memory):
    array = number.partition("_")[0]
    assert by_accounts(number, ACCOUNTS[array]) == by_accounting
    assert by_controller(number, SHOWN[array]) == by_memory


def test_nothing_is_made_up():
    assert by_controller("7_0", "") is None
