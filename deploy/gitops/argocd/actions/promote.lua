local os = require("os")
obj.spec.action = { type = "Promote", id = "argocd-" .. os.time() }
return obj
