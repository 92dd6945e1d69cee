"""What holds for all tests: numbers are worked out in one thread, as in the processes of a run, whatever is set.

The order of a sum depends on it. And two threads that wait for each other in each small product make everything ten
times slower on a busy machine.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"
