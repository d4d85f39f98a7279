# seed 617962246871: stl-1: sent at 00:01:05, and the lease ends at 00:01:00
key lifetime = 24h0m0s
visibility lag = 0s
answer to a known key = the transfer
usual send outcome = none
usual processing = none
store = faulty
bank at the end = honest
watch until nothing is due = true
ack deadline = 2m0s
#      00:00:00  key lifetime 24h0m0s, visibility lag 0s, ack deadline 2m0s
more instances at the start = 1
clock offset = 0s
configuration = correct
#      00:00:00  instance 1 starts, configuration correct, clock offset 0s
clock offset = 0s
configuration = correct
#      00:00:00  instance 2 starts, configuration correct, clock offset 0s
step = push
publication = a new payout
new payout = plain
settlement ID = stl-1
#      00:00:00  message stl-1.1 is published: a new payout, plain
instance = instance 1
#      00:00:00  message stl-1.1 is pushed to instance 1, attempt 1
step = resume one
call = settle stl-1
commit outcome = commits, answer pending
#      00:00:00  instance 1: the transaction that settles stl-1 commits, answer pending
step = reconcile at several due times
rounds = 1
#      00:00:00  1m5s pass
instance = instance 1
#      00:01:05  instance 1 reconciles
commit answer = is answered
#      00:01:05  instance 1: the transaction that settles stl-1 is answered
#      00:01:05  broken promise: stl-1: sent at 00:01:05, and the lease ends at 00:01:00
