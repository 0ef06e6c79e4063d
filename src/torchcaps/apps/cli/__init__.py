"""The command line. A command's options and its code are imported when it is called."""
