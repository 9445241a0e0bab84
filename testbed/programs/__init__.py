"""Programs that know nothing of Railbed, in the network of the GPU proxies."""
