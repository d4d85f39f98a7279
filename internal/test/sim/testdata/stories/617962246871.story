# seed 617962246871: stl-1: sent at 00:01:05, and the lease ends at 00:01:00
the bank remembers a key for = 24h0m0s
the bank shows a transfer after = 0s
the bank answers a key that it knows with = its transfer
habit of the bank = none
mood of the bank = none
the store is = faulty
the bank in the end = honest
everything is watched to the end = true
ack deadline = 2m0s
#      00:00:00  the bank remembers a key for 24h0m0s and shows a transfer after 0s; Pub/Sub waits 2m0s for an answer
more instances at first = 1
clock of an instance = 0s
configuration of an instance = as it should be
#      00:00:00  instance 1 starts, its clock is right
clock of an instance = 0s
configuration of an instance = as it should be
#      00:00:00  instance 2 starts, its clock is right
step = push
what is published = a new payout
the new payout is = plain
its settlement ID = stl-1
#      00:00:00  message stl-1.1 is published: a new payout, plain
instance = instance 1
#      00:00:00  message stl-1.1 is pushed to instance 1, attempt 1
step = go on
call = settle stl-1
how a commit goes on = commits, the answer is under way
#      00:00:00  instance 1: the transaction that settles stl-1 commits, the answer is under way
step = wait for several
how many = 1
#      00:00:00  1m5s pass
instance = instance 1
#      00:01:05  instance 1 reconciles
how a commit's answer comes = is answered
#      00:01:05  instance 1: the transaction that settles stl-1 is answered
#      00:01:05  here it breaks: stl-1: sent at 00:01:05, and the lease ends at 00:01:00
