"""Native code: functions written in a subset of Python that become machine code of this process, kept in a disk cache."""
