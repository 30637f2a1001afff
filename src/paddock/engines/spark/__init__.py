"""Spark over HiveServer2's Thrift protocol, as its own Thrift server and Kyuubi serve it: for table maintenance only."""
