"""Whatever a store, a journal, a plan or a repository holds, and whoever else uses the machine: nobody gets hurt."""
