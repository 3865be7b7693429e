"""Networks trained with DistributedDataParallel, once for each way to average, and compared."""
