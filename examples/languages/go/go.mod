module lathe

go 1.19
