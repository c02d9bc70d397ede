"""Where logs and files of jobs are kept: a directory, or gs://."""
